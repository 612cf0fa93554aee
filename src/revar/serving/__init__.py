"""A run behind HTTP: decisions that may be "abstain", within limits, and watched.

limits      what is refused, and when
refusals    how it is said
token       who may ask
inputs      bytes to examples; no HTTP
bodies      requests to bytes
deciding    examples to decisions
batching    requests that share a forward pass
metrics     what Prometheus reads, and the look for drift
page        the page at /
app         the routes
server      the process: socket, signals, end
"""
