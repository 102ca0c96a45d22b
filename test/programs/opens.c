// opens: six opens; two succeed, and ENOENT, ENAMETOOLONG, EFAULT and ENOTDIR. It prints the number of calls and errors.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	static char name[4200];
	memset(name, 'n', sizeof name - 1);
	const char *paths[] = { "/", "/dev/null", "/nonexistent", name, (const char *)0x10, "/dev/null/x" };
	int errors = 0;
	for (int i = 0; i < 6; i++)
		if (syscall(SYS_openat, AT_FDCWD, paths[i], O_RDONLY, 0) < 0)
			errors++;
	printf("6 %d\n", errors);
	return 0;
}
