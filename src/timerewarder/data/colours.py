"""How FFmpeg's swscale turns YUV pixels into RGB and back without a visible trace.

Its default is two to three times faster, but rounds down: every picture comes out darker by about 1.2 of 255, so that
frames from a file would differ from the same frames from a simulator. The numbers are libswscale's own; PyAV has names
for all of them only since version 18.
"""

BILINEAR = 1 << 1
BICUBIC = 1 << 2
FULL_CHROMA = 1 << 13 | 1 << 14  # interpolate chroma at every pixel, SWS_FULL_CHR_H_INT and SWS_FULL_CHR_H_INP
ACCURATE_ROUNDING = 1 << 18

TO_RGB = BILINEAR | FULL_CHROMA | ACCURATE_ROUNDING
TO_RGB_AS_LEROBOT = BILINEAR  # the default: frames of a dataset are those that LeRobot gives to its policies
TO_YUV = BICUBIC | FULL_CHROMA | ACCURATE_ROUNDING
