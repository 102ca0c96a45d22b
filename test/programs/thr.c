/* Three threads write one global five times each, one after the other, and main changes a member of a structure. What a
 * watchpoint must show: 15 writes, each by writer, in steps of one. With an argument it makes the threads, says "ready", and
 * waits for a line before they go on; after them it makes 20 threads more, each of which writes once. */
#include <pthread.h>
#include <stdio.h>

long g;
struct {
	int unused;
	int mode;
	char wide[24];
} cfg;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void writer(long v) { g = v; }

static void *once(void *arg)
{
	(void)arg;
	writer(g + 1);
	return NULL;
}

static void *work(void *arg)
{
	(void)arg;
	for (int i = 0; i < 5; i++) {
		pthread_mutex_lock(&turn);
		writer(g + 1);
		pthread_mutex_unlock(&turn);
	}
	return NULL;
}

__attribute__((noinline)) void configure(int mode) { cfg.mode = mode; }
__attribute__((noinline)) void touch(int i) { cfg.wide[i]++; }

int main(int argc, char **argv)
{
	pthread_t t[3];
	char line[8];
	long want = 15;

	(void)argv;
	if (argc > 1)
		pthread_mutex_lock(&turn);
	configure(3);
	configure(-1);
	for (int i = 0; i < 24; i++)
		touch(i);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, work, NULL);
	if (argc > 1) {
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			return 2;
		configure(7);
		pthread_mutex_unlock(&turn);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (; argc > 1 && want < 35; want++) {
		pthread_create(&t[0], NULL, once, NULL);
		pthread_join(t[0], NULL);
	}
	printf("%ld\n", g);
	return g == want ? 0 : 1;
}
