"""Collections that the engine holds for memory programs: texts, their embeddings, their words, found by content."""
