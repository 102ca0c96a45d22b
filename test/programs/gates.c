// Enters the kernel through the gates of x86-64: syscall, syscall with x32's bit and, with an argument, int 0x80 with 32-bit
// pointers.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __x86_64__
static long int80(long nr, long a, long b, long c, long d)
{
	long ret;
	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d) : "memory", "r8", "r9", "r10", "r11");
	return ret;
}
#endif

int main(int argc, char **argv)
{
	syscall(SYS_openat, -100, "/nonexistent/native", 0, 0);
#ifdef __x86_64__
	syscall(0x40000000 | 257 /* openat */, -100, "/nonexistent/x32", 0, 0);
	if (argc < 2)
		return 0;
	char *low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	strcpy(low, "/nonexistent/compat");
	strcpy(low + 100, "hello, world");
	uint32_t iov[4] = {(uint32_t)(uintptr_t)low + 100, 7, (uint32_t)(uintptr_t)low + 107, 5};
	memcpy(low + 200, iov, sizeof iov);
	int80(295 /* openat */, -100, (long)low, 0, 0);
	int80(146 /* writev */, -1, (long)low + 200, 2, 0);
#endif
	return 0;
}
