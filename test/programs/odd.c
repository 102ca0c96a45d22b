// odd calls mark from unusual places: a constructor that the dynamic linker runs, a callback of the C library, signal handlers (also on
// a stack of their own, and above a leaf), a realigned frame of variable size, a thread, and a call that is the last instruction.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noinline))
volatile long sink;
KEEP void mark(long x) { sink += x; __asm__ volatile("" ::: "memory"); }

static int compare(const void *a, const void *b)
{
	mark(1);
	return *(const int *)a - *(const int *)b;
}

static void handler(int s, siginfo_t *si, void *u)
{
	(void)si, (void)u;
	mark(s);
}

// An instruction that no processor has; the handler steps over it.
KEEP long leaf_fault(long x)
{
#ifdef __x86_64__
	__asm__ volatile("ud2" ::: "memory");
#else
	__asm__ volatile(".word 0" ::: "memory");
#endif
	return x + 1;
}

static void handler_ill(int s, siginfo_t *si, void *u)
{
	(void)si;
#ifdef __x86_64__
	((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP] += 2;
#else
	((ucontext_t *)u)->uc_mcontext.pc += 4;
#endif
	mark(s);
}

KEEP long realigned(long n)
{
	volatile char v[n];
	volatile double d[8] __attribute__((aligned(64)));
	d[n & 7] = n, v[0] = 1;
	mark(n);
	return (long)d[0] + v[0];
}

static void *thread(void *a)
{
	mark((long)a);
	return 0;
}

__attribute__((constructor)) static void constructor(void) { mark(99); }
KEEP __attribute__((noreturn)) void die(long x) { mark(x), _exit(0); }
KEEP long calls_die(long x)
{
	if (x > 5)
		die(x);
	return x;
}

int main(int argc, char **argv)
{
	(void)argv;
	int v[6] = {5, 3, 4, 1, 2, 0};
	qsort(v, 6, sizeof v[0], compare);
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_flags = SA_SIGINFO;
	sa.sa_sigaction = handler_ill;
	sigaction(SIGILL, &sa, 0);
	sa.sa_sigaction = handler;
	sigaction(SIGUSR1, &sa, 0);
	raise(SIGUSR1);
	stack_t ss = {.ss_sp = malloc(65536), .ss_size = 65536};
	sigaltstack(&ss, 0);
	sa.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &sa, 0);
	raise(SIGUSR2);
	sink += leaf_fault(argc);
	sink += realigned(40 + argc);
	pthread_t t;
	pthread_create(&t, 0, thread, (void *)7L);
	pthread_join(t, 0);
	sink += calls_die(argc + 10);
	return 0;
}
