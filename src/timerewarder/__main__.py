from timerewarder.cli import main

main()
