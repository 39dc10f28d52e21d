package main

// A rule finds a phrase and names its replacement. A pattern ignores case and matches whole words,
// and a space in it also matches the end of a line. Code in backquotes is never matched.
type rule struct {
	name, pattern, message string
	// verb restricts the rule to the verb of a function's doc comment.
	verb bool
	// The rule finds each text of bad once, and none of good. With verb they are doc comments of F.
	bad, good []string
}

var rules = []rule{
	{
		name: "wants", pattern: `wants`, message: "requires, expects or waits for",
		bad: []string{"It wants the capability manage."}, good: []string{"The caller may want it."},
	},
	{
		name: "by-itself", pattern: `by (itself|themselves)`, message: "on its own",
		bad: []string{"It ends by itself."}, good: []string{"on its own"},
	},
	{
		name: "for-ever", pattern: `for ever`, message: "forever",
		bad: []string{"It waits for\never."}, good: []string{"It waits forever.", "for every one"},
	},
	{
		name: "for-good", pattern: `for good`, message: "permanently",
		bad: []string{"It is gone for good.", "It left for good and rejoined."}, good: []string{"for good reasons"},
	},
	{
		name: "he", pattern: `he|him|his|himself`, message: "they, them, their or the noun",
		bad: []string{"A user may remove himself.", "what he sent"}, good: []string{"what they sent", "the"},
	},
	{
		name: "tells", pattern: `tells (whether|how|what|which|when|where|who|of|that|about)`,
		message: "reports or returns",
		bad:     []string{"It tells whether there are more."}, good: []string{"The error tells the operator what to do."},
	},
	{
		name: "told", pattern: `told (apart|of|from|by)`, message: "is notified of, receives or distinguishes",
		bad: []string{"A client is told of it.", "told from a clash"}, good: []string{"Clients are told to retry."},
	},
	{
		name: "gives", pattern: `gives`, message: "returns, passes or grants",
		bad: []string{"It gives the head."}, good: []string{"It gives up after a second.", "what it is given"},
	},
	{
		name: "first-verb", pattern: `makes|gives|tells`, verb: true,
		message: "creates, returns or reports",
		bad:     []string{"F makes a client.", "F tells if it is."},
		good:    []string{"F makes a call fail.", "F makes one random call.", "F gives up after a second.", "F returns what makes a key."},
	},
	{
		name: "third-person", pattern: `[a-z]+`, verb: true, message: "a verb of the third person, as in: returns, creates, reports whether",
		bad: []string{"F return the head."}, good: []string{"F returns the head.", "F may be called twice.", "F also closes it."},
	},
	{
		name: "has-it-that", pattern: `(has|have|had) it that`, message: "states or ensures that",
		bad: []string{"The rule has it that one wins."}, good: []string{"has it"},
	},
	{
		name: "all-the-while", pattern: `all the while`, message: "meanwhile, or throughout",
		bad: []string{"It is there all the while."}, good: []string{"all the time"},
	},
	{
		name: "there-and-then", pattern: `there and then|then and there`, message: "at once",
		bad: []string{"It fails there and then."}, good: []string{"here and there"},
	},
	{
		name: "vain", pattern: `vain(ly)?`, message: "without effect or result",
		bad: []string{"It polls in vain."}, good: []string{"available"},
	},
	{
		name: "whoever", pattern: `(who|what)(so)?ever`, message: "regardless of, or a noun: every caller, any error",
		bad: []string{"Whoever calls it waits."}, good: []string{"every caller, however late"},
	},
	{
		name: "that-which", pattern: `(that|those) which`, message: "the noun, or what",
		bad: []string{"It keeps that which is due."}, good: []string{"what is due"},
	},
	{
		name: "of-old", pattern: `of old`, message: "earlier, or former",
		bad: []string{"as of old"}, good: []string{"of older entries"},
	},
	{
		name: "hears-of", pattern: `(learn|learns|learned|hear|hears|heard) of`, message: "is notified of, or receives",
		bad: []string{"A node that hears of it leaves."}, good: []string{"It learns the head."},
	},
	{
		name: "is-had", pattern: `(is|are|be|was|were|can't be|cannot be) had`, message: "is available, or held",
		bad: []string{"The lock is had by one."}, good: []string{"It had a lock."},
	},
	{
		name: "can-not", pattern: `can not`, message: "cannot",
		bad: []string{"It can not fail."}, good: []string{"It cannot fail."},
	},
}
