"""Small policies for image patches, for tests."""

from dataclasses import replace

from an_control.policy.sizes import CAR_RACING_SIZES, PONG_SIZES

TOP_PATCHES = replace(CAR_RACING_SIZES, grid=8, message=5, stack=3, patch=2, hidden=4)
CONVOLUTION = replace(PONG_SIZES, grid=9, message=6, patch=3, filters=7, hidden=11)
CONVOLUTION_MEMORY = replace(CONVOLUTION, memory=5)
CONVOLUTION_SAB = replace(CONVOLUTION, encoder="sab")
CONVOLUTION_PMA = replace(CONVOLUTION, attention="pma", heads=2)
CONVOLUTION_ISAB_PMA = replace(CONVOLUTION_PMA, encoder="isab", inducing=4)
