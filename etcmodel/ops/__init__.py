"""Pure tensor functions: attention and helpers of layers and features."""
