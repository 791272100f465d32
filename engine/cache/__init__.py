"""The page pool, the pages of sequences, the prefix tree, stores, host memory and files."""
