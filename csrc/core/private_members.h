// private_members: PyTorch's private data members, where there is no other way to what they hold.
//
// An explicit instantiation may name private members. So a tag declares the type of one and `open`,
// and the instantiation defines it:
//
//   struct Classes {
//     using Member = std::vector<c10::NamedTypePtr> CompilationUnit::*;
//     friend Member open(Classes);
//   };
//   template struct Opened<Classes, &CompilationUnit::classes_>;
//
// Then `unit.*open(Classes())` is the member. Tags lie in the namespace of Opened. A release of
// PyTorch that renames it does not compile.
#pragma once

namespace jit_amp {

template <typename Tag, typename Tag::Member member>
struct Opened {
  friend typename Tag::Member open(Tag) { return member; }
};

}  // namespace jit_amp
