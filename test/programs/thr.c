/* Three threads write one global five times each, one after the other, and main changes a member of a structure. What a
 * watchpoint must show: 15 writes, each by writer, in steps of one. */
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

int main(void)
{
	pthread_t t[3];
	configure(3);
	configure(-1);
	for (int i = 0; i < 24; i++)
		touch(i);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	printf("%ld\n", g);
	return g == 15 ? 0 : 1;
}
