// How a test talks to a Go program: as tests/python/lines.py says, one JSON command a line on standard input, one JSON line back.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

type object = map[string]interface{}

var output sync.Mutex

// One write a line, so that lines of several goroutines never mix.
func say(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// Obeys commands, side by side, until standard input ends.
func serve(commands map[string]func(command object) (interface{}, error)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command := object{}
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			panic(err)
		}
		go func() {
			do, found := commands[command["do"].(string)]
			if !found {
				panic(command)
			}
			result, err := do(command)
			if err != nil {
				say(object{"id": command["id"], "error": fmt.Sprint(err)})
				return
			}
			say(object{"id": command["id"], "result": result})
		}()
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
