"""The OpenAI front: keys, validation, chat template, tokenisation, the life of a request."""
