"""The double buffer in shared memory: layout, writer, reader. Knows bytes."""
