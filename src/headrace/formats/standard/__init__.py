"""What the project's two own formats, llm_stream and gateway, share: vocabulary, messages, options, and the walk of a stream.

Both say the same things in other envelopes. Where llm-stream puts our own words under `extensions["vendor:headrace"]`, the
gateway format has plain fields of the same names; vendors' words are in `extensions` under "vendor:NAME" in both.
"""
