// spawn N: N times, one after the other, forks and executes itself; each new program calls close(5000) first of all of its
// own calls and exits with 0. It prints the ids of the children, one a line.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "child") == 0) {
		syscall(SYS_close, 5000);
		_exit(0);
	}
	int n = argc > 1 ? atoi(argv[1]) : 500;
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			execl("/proc/self/exe", "spawn", "child", NULL);
			_exit(1);
		}
		int status;
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			return 1;
		printf("%d\n", (int)pid);
	}
	return 0;
}
