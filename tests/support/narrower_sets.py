"""Print the instruction sets narrower than the one that oneDNN uses here, by the names for ONEDNN_MAX_CPU_ISA."""

from both_engines import AVX, AVX512, uses, why_missing

WIDER = {"AVX2": AVX512, "SSE41": AVX}  # what a processor with more has

if __name__ == "__main__" and not why_missing():
    print(*(name for name, wider in WIDER.items() if uses(wider)))
