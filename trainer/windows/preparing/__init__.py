"""The parts of a day's preparation: inputs, scan, buckets, order, writing. Rows stream through; memory stays flat."""
