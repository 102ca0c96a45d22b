// tree DEPTH fork|vfork|clone|clone3: each process marks its level by close(1000 + level), and makes the next. The deepest
// exits with 7, and so do all above it. It prints one line "level pid" each.
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void level(int n, int depth, const char *how)
{
	char line[64];
	syscall(SYS_close, 1000 + n);
	int len = snprintf(line, sizeof line, "%d %d\n", n, (int)syscall(SYS_getpid));
	if (write(1, line, len) != len)
		_exit(1);
	if (n == depth)
		_exit(7);
	pid_t pid;
	if (strcmp(how, "vfork") == 0) {
		pid = vfork();
	} else if (strcmp(how, "clone") == 0) {
		pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	} else if (strcmp(how, "clone3") == 0) {
		struct clone_args a = { .exit_signal = SIGCHLD };
		pid = syscall(SYS_clone3, &a, sizeof a);
	} else {
		pid = fork();
	}
	if (pid < 0)
		_exit(1);
	if (pid == 0)
		level(n + 1, depth, how);
	int status;
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		_exit(1);
	_exit(WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	level(0, argc > 1 ? atoi(argv[1]) : 2, argc > 2 ? argv[2] : "fork");
}
