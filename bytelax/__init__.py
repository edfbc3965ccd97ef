"""bytelax: byte-level language models, decoded faster and exactly."""
