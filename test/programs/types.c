// One call with a value of every common kind, and functions that return some; prints what it passed.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum colour { RED, GREEN, BLUE };
struct inner { int a, b; };
struct outer {
	const char *name;
	struct inner in;
	double ratio;
	enum colour colour;
	unsigned three : 3, five : 5;
	signed int less : 4;
	char tag[8];
	short list[4];
	struct outer *next;
	union { int i; float f; } u;
};
struct pair { int x, y; };
struct big { long v[5]; };
typedef unsigned long count_t;

volatile int sink;
__attribute__((noinline)) int use(struct outer *p, struct pair v, double d, float f, const char *text, char c, bool flag, count_t most, int seventh, int eighth)
{
	sink += p->in.a + v.x + (int)d + (int)f + text[0] + c + flag + (int)most + seventh + eighth;
	return sink;
}
__attribute__((noinline)) int whole(struct pair v, struct big b, unsigned char u, short s, int *one, enum colour col, const char **names)
{
	sink += v.x + (int)b.v[4] + u + s + *one + col + names[0][0];
	return -3;
}
__attribute__((noinline)) struct pair both(int x) { sink++; struct pair p = {x, -x}; return p; }
__attribute__((noinline)) const char *name(enum colour c) { sink++; return c == GREEN ? "green" : "other"; }
__attribute__((noinline)) bool truth(int x) { sink++; return x > 0; }
__attribute__((noinline)) void nothing(void) { sink++; }

int main(void)
{
	struct outer o = {"demo", {3, 4}, 2.5, GREEN, 5, 9, -2, "tagged", {1, -2, 3, 4}, 0, {7}};
	struct pair v = {7, -8};
	struct big b = {{1, 2, 3, 4, 5}};
	int one = 11;
	const char *names[] = {"first", "second", 0};
	o.next = &o;
	use(&o, v, 1.5, 0.25f, "h\303\251llo", 'Z', true, 18446744073709551615ul, 77, -88);
	whole(v, b, 200, -300, &one, BLUE, names);
	both(5);
	name(GREEN);
	truth(1);
	nothing();
	puts("done");
	return 0;
}
