// cold: opens a path twice from a page of memory that was never touched. The truth: both calls name the path.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *dir = argc > 1 ? argv[1] : "/tmp";
	char name[4096], page[8192] = { 0 };
	snprintf(name, sizeof name, "%s/cold.XXXXXX", dir);
	int fd = mkstemp(name);
	snprintf(page + 4096, 4096, "/nonexistent/in/a/cold/page");
	if (fd < 0 || unlink(name) != 0 || write(fd, page, sizeof page) != sizeof page)
		return 1;
	char *map = mmap(NULL, sizeof page, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return 1;
	syscall(SYS_openat, AT_FDCWD, map + 4096, O_RDONLY, 0);
	syscall(SYS_openat, AT_FDCWD, map + 4096, O_RDONLY, 0);
	printf("/nonexistent/in/a/cold/page 2\n");
	return 0;
}
