// crew: three threads wait; the program prints "pid tid tid tid" and reads a line. Then each thread, and one more that is
// made now, calls close(7000) a hundred times, the program prints the fourth's tid, reads a line and ends. At the end of
// stdin it ends at once.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t born, go, done;
static int tids[4];

static void *member(void *arg)
{
	long me = (long)arg;
	tids[me] = syscall(SYS_gettid);
	if (me < 3) {
		pthread_barrier_wait(&born);
		pthread_barrier_wait(&go);
	}
	for (int i = 0; i < 100; i++)
		syscall(SYS_close, 7000);
	pthread_barrier_wait(&done);
	return NULL;
}

int main(void)
{
	pthread_t t;
	char line[64];
	pthread_barrier_init(&born, NULL, 4);
	pthread_barrier_init(&go, NULL, 4);
	pthread_barrier_init(&done, NULL, 5);
	for (long i = 0; i < 3; i++)
		pthread_create(&t, NULL, member, (void *)i);
	pthread_barrier_wait(&born);
	printf("%d %d %d %d\n", (int)getpid(), tids[0], tids[1], tids[2]);
	fflush(stdout);
	if (fgets(line, sizeof line, stdin) == NULL)
		return 0;
	pthread_create(&t, NULL, member, (void *)3L);
	pthread_barrier_wait(&go);
	pthread_barrier_wait(&done);
	printf("%d\n", tids[3]);
	fflush(stdout);
	if (fgets(line, sizeof line, stdin) == NULL)
		return 0;
	return 0;
}
