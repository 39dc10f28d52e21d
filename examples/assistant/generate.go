package main

import (
	"fmt"
	"strings"
)

const code = "```go\nclient, err := parley.New(addr, parley.WithToken(token))\nif err != nil {\n\treturn err\n}\n" +
	"session := client.Session(\"chat-1\")\n_, err = session.Append(ctx, parley.SessionRoleUser, \"hello\")\n```\n"

// generate returns the tokens of the answer to a prompt, and whether the generation fails after
// them. A prompt that begins with "long" has an answer of about 1,500 tokens.
func generate(prompt string) (tokens []string, failure bool) {
	command, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(prompt)), " ")
	var b strings.Builder
	fmt.Fprintf(&b, "You wrote %d words. I am a **script**, so this answer is the same for every prompt:\n\n", len(strings.Fields(prompt)))
	b.WriteString("1. A prompt is a message with the role `user`.\n2. Its answer is opened, and *streamed* while it is generated.\n" +
		"3. At the end it is closed with the whole text.\n\nIn Go a prompt is appended so:\n\n" + code +
		"\nBegin a prompt with `long` for a long answer, or with `fail` for one that fails halfway.\n")
	if command == "long" {
		for i := range 30 {
			fmt.Fprintf(&b, "\n## Part %d\n\nThis part says nothing new. It only takes a while, so that you can *stop* it, "+
				"reload the page, or kill the assistant and start it again.\n\n%s", i+1, code)
		}
	}
	tokens = strings.SplitAfter(b.String(), " ")
	if command == "fail" {
		return tokens[:len(tokens)/2], true
	}
	return tokens, false
}
