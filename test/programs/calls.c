// Calls functions of its own and of the C library whose arguments and results are known, and prints what it did.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point { int x, y; };

__attribute__((noinline)) int add(int a, int b) { __asm__ volatile(""); return a + b; }
__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	__asm__ volatile("");
	return a + b + c + d + e + f + g + h + i + j;
}
__attribute__((noinline)) size_t measure(const char *text, unsigned long n) { __asm__ volatile(""); return strlen(text) + n; }
__attribute__((noinline)) int fact(int n) { return n < 2 ? 1 : n * fact(n - 1); }
static jmp_buf out;
__attribute__((noinline)) void leave(int n)
{
	__asm__ volatile("");
	if (n == 0)
		longjmp(out, 1);
	leave(n - 1);
	__asm__ volatile("");
}
__attribute__((noinline)) int escape(int n)
{
	if (setjmp(out) == 0)
		leave(n);
	return n;
}

int main(int argc, char **argv)
{
	int sum = 0;
	for (int i = 0; i < 3; i++)
		sum += add(i, 10);
	long m = many(1, 2, 3, 4, 5, 6, 7, 8, 9, -10);
	size_t len = measure("h\303\251llo", 5);
	int f = fact(4);
	int e = escape(2);
	char *p = malloc(123);
	strcpy(p, "copied");
	long v = strtol("77", NULL, 10);
	printf("%d %ld %zu %d %d %s %ld\n", sum, m, len, f, e, p, v);
	free(p);
	return 0;
}
