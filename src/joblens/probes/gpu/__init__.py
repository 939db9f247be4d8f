"""GPUs: NVML for NVIDIA, kernel files for AMD and Intel."""
