# Writes OUTPUT with the revision of the tree in SOURCE, and only when it changed. Run at build time by version.cmake.
# A tree that is no git checkout of its own (a release archive) has the revision that -DPGL_REVISION names, or none.
set(revision "${REVISION}")
if(revision STREQUAL "")
  execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE code)
  file(REAL_PATH ${SOURCE} source)
  if(code STREQUAL "0" AND top STREQUAL source)
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                    OUTPUT_VARIABLE revision ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endif()
set(text "#define PGL_REVISION \"${revision}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()
