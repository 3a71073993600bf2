"""The benchmark: plan -> worker -> gate and measurement -> record -> table. The parent imports neither framework."""
