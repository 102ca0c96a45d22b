// Functions that take what the C++ library holds texts and lists in, by reference, by pointer, by value and in classes with bases.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

struct base { int id; };
struct user : base {
	std::string name;
	std::vector<double> marks;
};
struct plain { short a, b; };

#define NOINLINE __attribute__((noinline, noipa))
extern "C" {
NOINLINE int greet(const std::string &who, std::string copy, std::string_view view, int n) { return who.size() + copy.size() + view.size() + n; }
NOINLINE long total(const std::vector<int> &list, std::vector<std::string> *names, int &cell) { return cell + list.size() + names->size(); }
NOINLINE int admit(const user &u, user copy, plain p, int n) { return u.id + copy.id + p.a + n; }
NOINLINE int empty(const std::string &s, const std::vector<int> &v, std::string_view w) { return s.size() + v.size() + w.size(); }
NOINLINE int bytes(const std::vector<unsigned char> &v) { return v.size(); }
}

int main()
{
	std::vector<int> list{1, 2, 3};
	std::vector<std::string> names{"x", "yz"};
	int cell = 5;
	user u;
	u.id = 9;
	u.name = "a name that is too long to be stored inside";
	u.marks = {1.5, 2.5};
	printf("%d %ld %d %d %d\n", greet(std::string("a\0b", 3), "bob", "view", 1), total(list, &names, cell), admit(u, u, {1, -2}, 77), empty("", {}, ""),
	       bytes({1, 255}));
}
