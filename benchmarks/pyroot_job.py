"""A job with PyROOT: reads and fits until it is ended, in Python, in ROOT's libraries and in code that cling makes.

pyroot_job.py PHASE        loop, callback, jitted or tree
"""

import sys

import ROOT

ROOT.gROOT.SetBatch(True)
ROOT.gErrorIgnoreLevel = ROOT.kError


def each_entry(tree):
    total = 0.0
    for entry in tree:
        total += entry.x * entry.x
    return total


def fitted(histogram):
    """A fit whose function is a function of Python."""

    def line(x, parameters):
        return parameters[0] + parameters[1] * x[0]

    function = ROOT.TF1("line", line, -3.0, 3.0, 2)
    return histogram.Fit(function, "Q0S")


def filled(histogram):
    for _ in range(100):
        histogram.FillRandom("gaus", 1000)
        histogram.Fit("gaus", "Q0")


def made_tree():
    tree, number = ROOT.TTree("t", "t"), ROOT.std.vector("double")(1)
    tree.Branch("x", number.data(), "x/D")
    for i in range(20000):
        number[0] = i * 0.5
        tree.Fill()
    return tree, number


def main(phase):
    histogram = ROOT.TH1D("h", "h", 100, -3.0, 3.0)
    histogram.FillRandom("gaus", 10000)
    if phase == "tree":
        tree, _number = made_tree()  # the tree holds its address
    if phase == "jitted":
        ROOT.gInterpreter.Declare(
            "double spin_in_cling(long n) { double t = 0; for (long i = 1; i < n; ++i) t += 1.0 / (t + i); return t; }"
        )
    print("begun", flush=True)
    while True:
        if phase == "tree":
            each_entry(tree)
        elif phase == "callback":
            fitted(histogram)
        elif phase == "jitted":
            ROOT.spin_in_cling(3000000)
        else:
            filled(histogram)


main(sys.argv[1])
