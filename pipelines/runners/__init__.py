"""Where a DAG runs: on this machine, in processes or in containers."""
