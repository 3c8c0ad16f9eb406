"""The fast engine: the reference's model, compiled, in arrays.

It makes the same decisions from the same arithmetic in the same order as `reference`, and so
gives the same results, to the last bit but for the order of the sum behind a TBT. What differs
is what it does not do:

- it holds no object a request, a block or a step, only columns;
- a decode node has no event a step, only one at each change of its batch. Between two changes the
  steps are walked in one tight loop, ahead of time; when a request becomes ready meanwhile, the
  walk is cut at the next boundary. A sequence's intervals are read back from the node's log of
  steps when it finishes, so every interval is known exactly and none is stored a sequence;
- fair shares are computed again only for the flows that a change can reach through shared links.

Modules: `events` (the heap), `shelves` (eviction policies), `caches` (tiers and the index of holders),
`flows` (transfers), `decoders` (batches), `engine` and `coupled` (the loops), `compiling` (Numba and
where it keeps its code).
"""
