"""How KV blocks get from one worker to another: decode pulls, prefill serves."""
