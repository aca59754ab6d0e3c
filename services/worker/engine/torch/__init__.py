"""The torch engine: transformers' modelling code over a paged KV pool, with continuous batching."""
