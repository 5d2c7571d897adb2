"""The frame around jobs: code hashes, configuration, preflight checks, checksums, logs, GPUs, memory."""
