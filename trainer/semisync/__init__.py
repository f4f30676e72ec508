"""The semi-synchronous pipeline: lookups that run beside the network, at most one update stale."""
