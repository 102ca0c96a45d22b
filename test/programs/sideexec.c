// sideexec: a thread beside the leader executes this program again while the leader pauses; the new program prints the
// process id and the id of the thread that executed it.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *side(void *self)
{
	char tid[16];
	snprintf(tid, sizeof tid, "%d", (int)syscall(SYS_gettid));
	execl(self, self, tid, NULL);
	exit(1);
}

int main(int argc, char **argv)
{
	pthread_t t;
	if (argc > 1) {
		printf("%d %s\n", (int)getpid(), argv[1]);
		return 0;
	}
	if (pthread_create(&t, NULL, side, "/proc/self/exe"))
		return 1;
	for (;;)
		pause();
}
