"""A stand-in for the few parts of LeRobot that the plug-in touches, for Pythons that LeRobot does not run on.

It mirrors LeRobot 0.6.1, whose base classes use the syntax of Python 3.12: names, signatures, which file is written,
how the parts of a plug-in are found by their names. It is written anew, without draccus, and does no more than that.
The tests take the real LeRobot where it is installed, and `test_standin.py` then compares this with it.
"""

__version__ = "0.6.1"
