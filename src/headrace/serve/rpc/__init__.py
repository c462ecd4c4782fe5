"""gRPC and Connect: the calls of headrace.v1.LlmGateway as requests of the gateway format (needs the extra `grpc`)."""
