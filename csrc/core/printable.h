// printable: texts of files and programs, as they may be shown.
//
// A file that somebody else made may name its sources as it likes: with sequences that move a
// terminal's cursor, with characters that turn the direction of what follows, or with bytes that
// are no text. Shown, these are escaped as Python's `repr` does it.
#pragma once

#include <string>
#include <string_view>

namespace jit_amp {

// UTF-8 without control and formatting characters: `\x1b`, `\u202e`; `\xff` for a byte that is not
// of UTF-8. With `lines`, ends of lines and tabs stay.
std::string printable(std::string_view text, bool lines);

bool is_utf8(std::string_view text);

}  // namespace jit_amp
