"""python -m mqcore.layout"""

import sys
from pathlib import Path

from mqcore.layout_files import main

main(Path(__file__).resolve().parents[2], sys.argv[1:])
