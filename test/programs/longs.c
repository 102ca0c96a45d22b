// longs: opens a path of 3,900 bytes and writes 5,000 bytes to /dev/null, some of them zero.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	static char path[3901], data[5000];
	for (int i = 0; i < 3900; i++)
		path[i] = i % 100 == 0 ? '/' : 'a' + i % 26;
	for (int i = 0; i < 5000; i++)
		data[i] = i % 50 == 0 ? 0 : 'A' + i % 26;
	int fd = open("/dev/null", O_WRONLY);
	if (open(path, O_RDONLY) >= 0 || write(fd, data, sizeof data) != sizeof data)
		return 1;
	printf("path 3900 data 5000\n");
	return 0;
}
