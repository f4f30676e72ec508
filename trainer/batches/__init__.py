"""A window as a shuffled, sharded stream of batches."""
