/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives a fuzzer the files that are named, one after the other: for a compiler without libFuzzer.
 */
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int count, char **names)
{
	static uint8_t data[1 << 20];

	for (int i = 1; i < count; i++) {
		FILE *file = fopen(names[i], "rb");

		if (!file)
			return 2;
		LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof(data), file));
		fclose(file);
	}
	return 0;
}
