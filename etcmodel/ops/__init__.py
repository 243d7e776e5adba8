"""Pure tensor functions: attention and what else layers and features need."""
