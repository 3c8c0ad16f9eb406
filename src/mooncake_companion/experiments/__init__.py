"""Experiments: one module a figure or table, from frozen `Params` to a tidy table."""
