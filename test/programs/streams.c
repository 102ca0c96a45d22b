// streams: copies a line from stdin to stdout, writes one to stderr, then exits with 42, or dies by the signal it is given.
// With "limits" it prints what a parent could have left in it: descriptors, signal dispositions, the mask and a limit.
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "limits") == 0) {
		for (int fd = 0; fd < 1024; fd++)
			if (dup2(fd, fd) == fd)
				printf("fd %d\n", fd);
		sigset_t set;
		sigprocmask(SIG_SETMASK, NULL, &set);
		for (int sig = 1; sig < 65; sig++) {
			struct sigaction sa;
			if (sigaction(sig, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
				printf("signal %d %s\n", sig, sa.sa_handler == SIG_IGN ? "ignored" : "handled");
			if (sigismember(&set, sig) == 1)
				printf("signal %d blocked\n", sig);
		}
		for (int r = 0; r < RLIM_NLIMITS; r++) {
			struct rlimit l;
			if (getrlimit(r, &l) == 0)
				printf("limit %d %llu %llu\n", r, (unsigned long long)l.rlim_cur, (unsigned long long)l.rlim_max);
		}
		printf("group %s\n", getpgrp() == getpid() ? "own" : "parent's");
		for (char **e = environ; *e; e++)
			printf("env %s\n", *e);
		return 0;
	}
	char line[256];
	if (fgets(line, sizeof line, stdin) == NULL)
		return 1;
	fputs(line, stdout);
	fputs("to stderr\n", stderr);
	fflush(NULL);
	if (argc > 1) {
		raise(atoi(argv[1]));
		return 1;
	}
	return 42;
}
