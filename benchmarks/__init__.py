"""Benchmarks: ratios against hand-written driver code, alternatives interleaved in the same run."""
