"""A real inference server (llama.cpp) as provider, with a model of half a megabyte that is made on the spot."""
