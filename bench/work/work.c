/* work: the loads of the benchmark. It measures the target itself, not the tracer around it:
 *   work loop OUT N       N getppid(2) calls made by syscall(2)
 *   work run OUT CMD ...  run a command and wait for it
 *   work forks OUT N      N times fork + exec of /bin/true, from one parent
 * and writes "wall_ns cpu_ns" of the measured part to OUT.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long cpu(int who)
{
	struct rusage u;
	getrusage(who, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL;
}

static void spawn(char **argv)
{
	pid_t p = fork();
	if (p == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	int status;
	if (p < 0 || waitpid(p, &status, 0) < 0) {
		perror("work");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	long long start = now(), c0 = cpu(RUSAGE_SELF) + cpu(RUSAGE_CHILDREN);
	if (!strcmp(argv[1], "loop")) {
		for (long i = atol(argv[3]); i > 0; i--)
			syscall(SYS_getppid);
	} else if (!strcmp(argv[1], "run")) {
		spawn(argv + 3);
	} else if (!strcmp(argv[1], "forks")) {
		char *true_argv[] = { "/bin/true", NULL };
		for (long i = atol(argv[3]); i > 0; i--)
			spawn(true_argv);
	} else {
		return 2;
	}
	long long wall = now() - start, used = cpu(RUSAGE_SELF) + cpu(RUSAGE_CHILDREN) - c0;
	FILE *f = fopen(argv[2], "w");
	if (!f)
		return 1;
	fprintf(f, "%lld %lld\n", wall, used);
	return fclose(f) ? 1 : 0;
}
