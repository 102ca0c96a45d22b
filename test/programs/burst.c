// burst PROCESSES CALLS: each of the processes makes so many getppid, and one line "pid calls" says so.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 4, calls = argc > 2 ? atoi(argv[2]) : 50000;
	for (int p = 0; p < processes; p++) {
		pid_t pid = fork();
		if (pid == 0) {
			for (int i = 0; i < calls; i++)
				syscall(SYS_getppid);
			_exit(0);
		}
		printf("%d %d\n", (int)pid, calls);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
