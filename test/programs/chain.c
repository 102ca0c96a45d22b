// main calls l1, l2, l3 and leaf, then goes down a recursion as deep as its argument says, and prints what it did.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>

#define KEEP __attribute__((noinline, noclone))
volatile int sink;
KEEP int leaf(int x) { sink += x; return x + 1; }
KEEP int l3(int x) { int r = leaf(x) * 3; sink += r; return r; }
KEEP int l2(int x) { int r = l3(x) * 2; sink += r; return r; }
KEEP int l1(int x) { int r = l2(x) + 1; sink += r; return r; }
KEEP int bottom(int x) { sink += x; syscall(SYS_getppid); return x; }
KEEP int rec(int n) { int r = n <= 1 ? bottom(n) : rec(n - 1) + 1; sink += r; return r; }

int main(int argc, char **argv)
{
	int depth = argc > 1 ? atoi(argv[1]) : 3;
	int a = l1(1);
	int b = rec(depth);
	printf("%d %d\n", a, b);
	return 0;
}
